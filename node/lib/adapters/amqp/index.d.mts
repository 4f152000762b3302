// ES modules import these names too.
export * from './index.js'
