// The same names for ES modules.
export * from './testing.js'
