// The same names for ES modules.
export * from './prom-client.js'
