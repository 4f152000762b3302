import backhop from './amqplib.js'

export const { Message, Retrier } = backhop
