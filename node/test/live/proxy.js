'use strict'
// A TCP proxy in front of the broker, which holds what the broker says, or cuts the connections.

const { once } = require('node:events')
const net = require('node:net')

class Proxy {
  #sockets = new Set()
  #held = new Set() // sockets from the broker
  #isHolding = false
  #server

  static async to (url) {
    const proxy = new Proxy()
    const broker = new URL(url)
    const port = Number(broker.port || 5672)
    proxy.#server = net.createServer(client => {
      const server = net.connect(port, broker.hostname)
      proxy.#join(client, server)
    })
    proxy.#server.listen(0, '127.0.0.1')
    await once(proxy.#server, 'listening')
    broker.host = `127.0.0.1:${proxy.#server.address().port}`
    proxy.url = broker.href
    return proxy
  }

  #join (client, server) {
    for (const [socket, other] of [[client, server], [server, client]]) {
      this.#sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('data', data => other.write(data))
      socket.on('error', () => {})
      socket.on('close', () => {
        this.#sockets.delete(socket)
        this.#held.delete(socket)
        other.destroy()
      })
    }
    this.#held.add(server)
    if (this.#isHolding) server.pause()
  }

  /** From now on the client receives nothing, while the broker does. */
  hold () {
    this.#isHolding = true
    for (const socket of this.#held) socket.pause()
  }

  release () {
    this.#isHolding = false
    for (const socket of this.#held) socket.resume()
  }

  /**
   * Ends all connections with a reset, as node-amqp connects again only after an error; new ones
   * pass.
   */
  cut () {
    for (const socket of this.#sockets) {
      if (socket.writableEnded) socket.destroy() // it is ending already; after a reset too it would never close
      else socket.resetAndDestroy()
    }
    this.#isHolding = false
  }

  close () {
    this.#server.close()
    this.cut()
  }
}

module.exports = { Proxy }
