// The same names for ES modules.
export * from './index.js'
