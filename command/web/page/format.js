// Numbers and times with their units.

export const count = number => Number(number).toLocaleString('en')
const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`
export const bytes = number => plural(number, 'byte', 'bytes')
export const groups = number => plural(number, 'group', 'groups')
export const queues = number => plural(number, 'queue', 'queues')
export const attempts = number => plural(number, 'attempt', 'attempts')
export const messages = number => plural(number, 'message', 'messages')

const UNITS = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]

// "1.6 s", or "4 min 30 s": as the command writes a time span, with three digits or at most two units.
export function span (ms) {
  if (ms < 60000) return `${Number((ms / 1000).toPrecision(3))} s`
  const parts = []
  let rest = Math.round(ms / 1000)
  for (const [size, name] of UNITS) {
    const whole = Math.floor(rest / size)
    if (whole > 0 && parts.length < 2) parts.push(`${whole} ${name}`)
    rest -= whole * size
  }
  return parts.join(' ')
}

// A time span in whole seconds, for a time that goes by.
export const seconds = ms => span(Math.round(ms / 1000) * 1000)

const CLOCK = { dateStyle: 'medium', timeStyle: 'medium' }
export const clock = ms => ms > 0 ? new Date(ms).toLocaleString(undefined, CLOCK) : 'not known'

// "17:28:20", with the date if that is not today's.
export function dayTime (ms, now = Date.now()) {
  if (!(ms > 0)) return ''
  const isToday = new Date(ms).toDateString() === new Date(now).toDateString()
  return isToday ? new Date(ms).toLocaleTimeString(undefined, { timeStyle: 'medium' }) : clock(ms)
}

const REASONS = {
  exhausted: 'all attempts failed',
  permanent: 'its handler allowed no further attempt',
  'too-old': 'too old for another attempt',
  oversized: 'its headers left no room for those of a retry',
  poison: 'its consumer was lost too often while it was in hand',
  several: 'several'
}
// Returns why messages were parked, in words; the reason itself if it is an unknown one.
export const reasonText = reason =>
  Object.hasOwn(REASONS, reason) ? REASONS[reason] : reason || 'none, not parked by Backhop'

// "12 min ago" or "in 12 min".
export function relative (ms, now = Date.now()) {
  if (!(ms > 0)) return 'not known'
  const distance = Math.abs(now - ms)
  if (distance < 1000) return 'now'
  const text = seconds(distance).split(' ').slice(0, 2).join(' ')
  return ms < now ? `${text} ago` : `in ${text}`
}
