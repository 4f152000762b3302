import bridge from './prom-client.js'

export const { prometheus } = bridge
