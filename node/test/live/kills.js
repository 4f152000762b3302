'use strict'
// Consumes over a carrier. Its handler ends the process: `kill`, or `exit`.

const { writeSync } = require('node:fs')

const { CARRIERS } = require('./carriers')

const [name, queue, namespace, how] = process.argv.slice(2)

async function main () {
  const onEvent = event => writeSync(1, `${event.name}\n`)
  const carrier = await CARRIERS[name].connect(process.env.AMQP_URL, queue, { namespace, onEvent })
  await carrier.retrier?.declare()
  await carrier.begin(() => {
    if (how === 'exit') process.exit(3)
    process.kill(process.pid, 'SIGKILL')
  })
}

main()
