// The page: session, screens, and the state that all screens share.
import { follow, logIn, session } from './api.js'
import { h, problem } from './dom.js'
import { count, relative } from './format.js'
import { isRunning, sumOf } from './state.js'
import tonight from './tonight.js'
import group from './group.js'
import jobs from './jobs.js'
import queues from './queues.js'
import health from './health.js'
import policy from './policy.js'
import history from './history.js'

const SCREENS = [
  ['', 'Tonight', tonight], ['group', null, group], ['jobs', 'Actions', jobs], ['queues', 'Queues', queues],
  ['health', 'Health', health], ['policy', 'Policy', policy], ['history', 'History', history]
]

const DEPTHS_MS = 3000 // the depths are this old at most: backhop top measures them every 2 s

// Shared by all screens. If the program does not answer, the state is lost and keeps the last actions.
// `listeners` are called with each new state, until the screen changes.
const app = {
  session: null,
  state: { jobs: [], depths: null, problem: '' },
  groups: null,
  heldUntil: 0, // until then the depths may lack messages that a look held
  listeners: [],
  go: hash => { location.hash = hash }
}
app.onState = listener => {
  app.listeners.push(listener)
  listener(app.state)
}

const main = document.getElementById('main')
const tabs = document.getElementById('tabs')
const status = document.getElementById('status')

function place () {
  const [name, query] = location.hash.replace(/^#\/?/, '').split('?')
  const screen = SCREENS.find(([key]) => key === name) || SCREENS[0]
  return { screen, query: new URLSearchParams(query) }
}

function drawTabs (name) {
  const running = app.state.jobs.filter(isRunning).length
  tabs.replaceChildren(...SCREENS.filter(([, title]) => title).map(([key, title]) => h('a', {
    href: `#/${key}`, 'aria-current': key === name || (key === '' && name === 'group') ? 'page' : null
  }, title, key === 'jobs' && running ? ` (${running})` : '')))
}

function show () {
  const { screen: [name, title, draw], query } = place()
  app.listeners = []
  drawTabs(name)
  document.title = `${title || 'One group'} · Backhop`
  main.replaceChildren()
  draw(app, main, query)
}

function summary (state) {
  if (state.problem) return 'No live figures'
  if (!state.depths) return 'Connecting to the broker…'
  const held = state.isHeld ? ', some held' : ''
  return `${count(sumOf(state, 'parked'))} parked${held} · ${relative(state.time_ms - 1000)}`
}

function onState (state) {
  const hasLooked = state.groups_number > (app.state.groups_number ?? Infinity)
  if (state.look || hasLooked) app.heldUntil = state.time_ms + DEPTHS_MS
  app.state = { ...app.state, isLost: false, ...state }
  app.state.isHeld = app.state.jobs.some(isRunning) || app.state.time_ms < app.heldUntil
  status.textContent = summary(app.state)
  status.className = state.problem ? 'danger' : ''
  status.title = state.problem || ''
  drawTabs(place().screen[0])
  for (const listener of app.listeners) listener(app.state)
}

async function begin () {
  const token = /[#&]token=([0-9a-f]+)/.exec(location.hash)?.[1]
  if (token) {
    forgetToken()
    await logIn(token)
  }
  app.session = await session()
  window.addEventListener('hashchange', () => {
    show()
    main.focus({ preventScroll: true })
    window.scrollTo(0, 0)
  })
  show()
  follow(onState)
}

// The token leaves the address at once, so that neither bookmarks nor the history keep it.
function forgetToken () {
  window.history.replaceState(null, '', location.pathname)
}

begin().catch(error => {
  main.replaceChildren(h('h2', {}, 'You are not signed in'), problem(error),
    h('p', {}, 'Start ', h('code', {}, 'backhop web'), ' in a terminal, and open the address that it prints. ',
      'It ends in ', h('code', {}, '#token=…'), ' and is new at each start.'))
})
