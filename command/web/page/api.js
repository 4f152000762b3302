// Calls of the program that serves this page.

export class Refused extends Error {
  constructor (status, message) {
    super(message)
    this.status = status
  }
}

// The path of calls has a secret part, since browsers send a cookie of 127.0.0.1 to all of its ports. Only this port
// reads this storage; all tabs and later visits use it. Behind a proxy nothing is stored.
const KEY = `backhop ${location.pathname}`
export const address = path => `${window.localStorage.getItem(KEY) || 'api'}/${path}`

async function call (path, options) {
  let answer
  try {
    answer = await fetch(path, { credentials: 'same-origin', ...options })
  } catch {
    throw new Refused(0, 'This page gets no answer. Is backhop web still running? ' +
      'If not, start it, and open the address that it prints.')
  }
  const body = await answer.json().catch(() => ({}))
  if (!answer.ok) throw new Refused(answer.status, body.error || `backhop web answered with status ${answer.status}.`)
  return body
}

const change = (path, body) => call(path, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json', 'X-Backhop': '1' },
  body: JSON.stringify(body)
})

export const get = path => call(address(path), {})
export const post = (path, body = {}) => change(address(path), body)

// Begins a session.
export async function logIn (token) {
  const { api } = await change('api/login', { token })
  window.localStorage.setItem(KEY, api)
}

// Returns the session. The path of a session that is over is forgotten: behind a proxy it would be in the way.
export async function session () {
  try {
    return await get('session')
  } catch (error) {
    window.localStorage.removeItem(KEY)
    throw error
  }
}

// Calls `listener` with each state: by events, or every 3 s if events do not come. A hidden page has no events, since a
// browser opens only six connections to one address.
export function follow (listener) {
  let timer
  let events
  const poll = async () => {
    try {
      listener(await get('state'))
    } catch (error) {
      listener({ problem: error.message, depths: null, isLost: true })
    }
  }
  const stopPolling = () => {
    clearInterval(timer)
    timer = undefined
  }
  const begin = () => {
    events = new EventSource(address('live'))
    events.onmessage = ({ data }) => {
      stopPolling()
      listener(JSON.parse(data))
    }
    events.onerror = () => { timer ??= setInterval(poll, 3000) }
  }
  document.addEventListener('visibilitychange', () => {
    events.close()
    stopPolling()
    if (!document.hidden) begin()
  })
  begin()
}
