// ES modules import these names too.
export * from './prom-client.js'
