'use strict'
// Listeners that write events to pino or winston.

module.exports = function listeners (logger) {
  // README: begin
  const LEVELS = { debug: 'debug', info: 'info', warning: 'warn', error: 'error' }

  const toPino = event => logger[LEVELS[event.level]]({ event }, String(event))
  const toWinston = event => { logger.log({ level: LEVELS[event.level], message: String(event), event }) }
  // README: end
  return { toPino, toWinston }
}
