import bridge from './opentelemetry.js'

export const { metrics, tracing } = bridge
