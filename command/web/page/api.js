// Calls of the program that serves this page.

export class Refused extends Error {
  constructor (status, message) {
    super(message)
    this.status = status
  }
}

async function call (path, options) {
  let answer
  try {
    answer = await fetch(`api/${path}`, { credentials: 'same-origin', ...options })
  } catch {
    throw new Refused(0, 'This page gets no answer. Is backhop web still running? ' +
      'If not, start it, and open the address that it prints.')
  }
  const body = await answer.json().catch(() => ({}))
  if (!answer.ok) throw new Refused(answer.status, body.error || `backhop web answered with status ${answer.status}.`)
  return body
}

export const get = path => call(path, {})
export const post = (path, body = {}) => call(path, {
  method: 'POST',
  headers: { 'Content-Type': 'application/json', 'X-Backhop': '1' },
  body: JSON.stringify(body)
})

// Calls `listener` with each state: by events, or every 3 s if events do not come. A hidden page has no events, since a
// browser opens only six connections to one address.
export function follow (listener) {
  let timer
  let events
  const poll = async () => {
    try {
      listener(await get('state'))
    } catch (error) {
      listener({ problem: error.message, jobs: [], depths: null, isLost: true })
    }
  }
  const stopPolling = () => {
    clearInterval(timer)
    timer = undefined
  }
  const begin = () => {
    events = new EventSource('api/live')
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
