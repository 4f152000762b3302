// ES modules import these names too.
export * from './testing.js'
