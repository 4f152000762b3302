// ES modules import these names too.
export * from './opentelemetry.js'
