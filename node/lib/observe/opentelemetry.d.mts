// The same names for ES modules.
export * from './opentelemetry.js'
