import backhop from './amqp.js'

export const { Message, Retrier } = backhop
