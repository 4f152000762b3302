// The history of actions, by this page and by the command; and saved files.
import { get } from './api.js'
import { button, h, problem, set, table } from './dom.js'
import { clock, count, messages, relative } from './format.js'
import { openAction, openLoad } from './action.js'

function outcome (each) {
  if (!each.ended_ms) return h('span', { class: 'warn' }, 'runs, or was killed')
  const done = each.replayed ?? each.dropped ?? each.loaded ?? 0
  return [`${count(done)} of ${count(each.messages ?? done)}`, each.parked_again ? `, ${count(each.parked_again)} parked again` : '', each.stopped ? `; stopped: ${each.stopped}` : '', each.code ? ` (exit code ${each.code})` : '']
}

function savedFiles (app, saved) {
  if (!saved.length) return null
  return [h('h3', {}, 'Saved files'), table('Saved files', [
    ['When', each => h('span', { title: clock(each.time_ms) }, relative(each.time_ms))],
    ['File', each => h('a', { href: `api/saved/${each.file}`, download: each.file }, each.file), 'error'],
    ['Bytes', each => count(each.bytes), 'number'],
    ['Loaded', each => each.loaded ? messages(each.loaded) : '–', 'number'],
    ['', each => app.session.may_drop && button('Load…', () => openLoad(app, each.file))]
  ], [...saved].sort((a, b) => b.time_ms - a.time_ms))]
}

export default async function history (app, main) {
  const place = h('div')
  main.append(h('h2', {}, 'History'), place)
  const rest = each => each.action === 'replay' && app.session.may_replay && (each.code || !each.ended_ms) &&
    !app.state.jobs.some(job => job.ended_ms === 0 && job.queue.replace(/\.parked$/, '') === each.queue.replace(/\.parked$/, ''))
  try {
    const [{ actions }, { saved }] = await Promise.all([get('history'), get('saved')])
    set(place, savedFiles(app, saved), saved.length > 0 && h('h3', {}, 'Actions'), actions.length
      ? table('Actions', [
          ['When', each => h('span', { title: clock(each.begun_ms) }, relative(each.begun_ms))],
          ['Who', each => each.user],
          ['What', each => each.action],
          ['Queue', each => each.queue || each.file],
          ['Selected', each => [(each.where || []).map(text => h('div', {}, h('code', {}, text))), each.like && h('code', {}, `like ${each.like}`)], 'error'],
          ['Result', outcome, 'number'],
          ['', each => rest(each) && h('button', {
            type: 'button',
            onclick: () => openAction(app, 'replay', {
              queue: each.queue,
              where: each.where,
              ramp: each.ramp,
              rate: each.rate,
              stop_after: each.stop_after,
              ...(each.limit && { limit: Math.max(1, each.limit - (each.replayed || 0)) })
            })
          }, 'Go on…')]
        ], actions)
      : h('div', { class: 'card' }, 'Nobody has replayed, dropped or loaded messages yet. This page and the command (--history) write what they do here.'))
  } catch (error) {
    set(place, problem(error))
  }
}
