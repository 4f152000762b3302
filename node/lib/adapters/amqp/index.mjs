import backhop from './index.js'

export const { Message, Retrier } = backhop
