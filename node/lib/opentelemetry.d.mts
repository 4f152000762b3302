// The same names, for who imports an ES module.
export * from './opentelemetry.js'
