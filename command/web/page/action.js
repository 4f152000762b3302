// The dialog of a replay, drop or load: settings, the exact count, and the count typed.
import { get, post } from './api.js'
import { add, bdi, bdis, field, h, lookProgress, problem, select, set } from './dom.js'
import { count, messages } from './format.js'
import { consumersOf } from './state.js'

const RAMPS = [
  ['1,2,5,20', '1, 2, 5, 20 (slow)'],
  ['5,20,100', '5, 20, 100 (faster)'],
  ['', 'no ramp']
]
const NAMES = { replay: 'Replay', drop: 'Drop', load: 'Load' }
const dialog = document.getElementById('dialog')

function settings (action, request) {
  if (action !== 'replay') return { read: () => ({}), elements: [] }
  const limit = h('input', { type: 'number', min: 1, step: 1, value: request.limit ?? '', placeholder: 'all' })
  const ramp = select(RAMPS, request.ramp ?? '1,2,5,20')
  const step = h('input', { type: 'text', value: request.ramp_step ?? '10s', size: 6 })
  const rate = h('input', { type: 'number', min: 0, value: request.rate || '', placeholder: 'as the last rate' })
  const stop = h('input', { type: 'number', min: 0, step: 1, value: request.stop_after ?? 3 })
  return {
    elements: [h('div', { class: 'grid' },
      field(`${request.queues.length > 1 ? 'Messages of each queue' : 'Number of messages'}, oldest first`, limit),
      field('Ramp, messages a second', ramp),
      field('Time at each rate of the ramp', step, 'for example 30s or 2m'),
      field('Messages a second after the ramp', rate, 'empty: the last rate of the ramp; without a ramp no limit'),
      field('Stop after so many are parked again', stop, '0: never'))],
    read: () => ({
      ...(limit.value && { limit: Number(limit.value) }),
      ...(ramp.value && { ramp: ramp.value, ramp_step: step.value }),
      rate: Number(rate.value),
      stop_after: Number(stop.value)
    })
  }
}

const noneFits = found => ['No message in ', bdi(found.from),
  ' fits now. Read the parked messages again on the first screen.']

function loadProspect (found) {
  if (!found.to_load) return 'No message of this file remains to be loaded.'
  const all = Object.entries(found.queues)
  const queues = bdis(all.map(([queue, number]) =>
    h('span', {}, bdi(queue), all.length > 1 && ` (${count(number)})`)))
  const loaded = found.skipped ? ` The first ${messages(found.skipped)} of the file were loaded before.` : ''
  return [`${messages(found.to_load)} will go to `, queues, `.${loaded}`]
}

function dropProspect (found) {
  if (!found.to_drop) return noneFits(found)
  return [`${count(found.to_drop)} of ${messages(found.parked)} in `, bdi(found.from), ' will be saved to a file ' +
    'on the machine of backhop web, then removed from the queue. You can load the file again.']
}

function replayProspect (found) {
  const stays = [
    found.cannot_go && `${messages(found.cannot_go)} without a work queue, or with too large headers`,
    found.replayed_too_often && `${messages(found.replayed_too_often)} replayed too often`,
    found.malformed && `${messages(found.malformed)} with malformed properties`
  ].filter(Boolean).join('; ')
  const goes = found.to_replay
    ? [`${count(found.to_replay)} of ${messages(found.parked)} in `, bdi(found.from),
        ' will go to ', bdi(found.to), '.']
    : noneFits(found)
  return [goes, stays && ` These stay parked: ${stays}.`]
}

// Returns what the consumers of the target mean for a replay.
function consumersNote (state, queue) {
  const consumers = consumersOf(state, queue)
  if (consumers == null) return null
  if (consumers > 0) {
    const found = consumers === 1 ? 'a consumer' : `${count(consumers)} consumers`
    return h('p', { class: 'muted' }, bdi(queue), ` has ${found}. `,
      'If the cause of the error remains, the messages are parked again.')
  }
  return h('p', { class: 'danger' }, bdi(queue), ' has no consumer: the messages will wait there until one is started.')
}

const PROSPECTS = { load: loadProspect, drop: dropProspect, replay: replayProspect }

const sum = list => list.reduce((one, other) => one + other, 0)

// Begins an action for each queue. If the program refuses one, the error names the actions that have begun.
async function begin (action, counted) {
  const begun = []
  for (const { body, number } of counted) {
    try {
      await post(action, { ...body, expect: number })
    } catch (error) {
      if (!begun.length) throw error
      throw new Error(`${body.queue}: ${error.message}\nThe action of ${begun.join(', ')} has begun.`)
    }
    begun.push(body.queue)
  }
}

// Begins once the count that was shown is typed. The program refuses if another number is selected by then.
// counted: { body, found, number } of each queue or file.
function confirm (app, action, counted, place) {
  const number = sum(counted.map(each => each.number))
  set(place, counted.map(({ found }) => h('p', {}, PROSPECTS[action](found))))
  if (!number) return
  if (action === 'replay') add(place, counted.map(each => each.number > 0 && consumersNote(app.state, each.found.to)))
  const typed = h('input', { inputmode: 'numeric', autocomplete: 'off', size: 10 })
  const kind = action === 'drop' ? 'danger' : 'main'
  const go = h('button', { type: 'submit', class: kind, disabled: true }, `${NAMES[action]} ${messages(number)}`)
  const trouble = h('div')
  typed.addEventListener('input', () => {
    const value = typed.value.replace(/[\s,]/g, '')
    go.disabled = value !== String(number)
    set(trouble, !String(number).startsWith(value) && h('p', { class: 'danger' }, `The number is ${number}.`))
  })
  place.append(h('form', {
    onsubmit: async event => {
      event.preventDefault()
      go.disabled = true
      try {
        await begin(action, counted.filter(each => each.number > 0))
        dialog.close()
        app.go('#/jobs')
      } catch (error) {
        set(trouble, problem(error))
      }
    }
  }, h('div', { class: 'row' }, field(`Type ${number} to confirm`, typed), go), trouble))
  typed.focus()
}

// Returns the body of the call for each queue, or for the file.
function bodiesOf (action, request, read) {
  if (action === 'load') return [{ file: request.file, ...(request.skip && { skip: request.skip }) }]
  return request.queues.map(queue => ({ queue, where: request.where || [], ...read() }))
}

function placeOf (action, { file, queues }) {
  if (action === 'load') return bdi(file)
  return queues.length > 1 ? `${queues.length} queues` : bdi(queues[0])
}

// request: { file, skip } of a load, else { queues, where, ... } as POST replay and POST drop have it.
export function openAction (app, action, request) {
  const place = h('div', { 'aria-live': 'polite' })
  const own = settings(action, request)
  const check = async () => {
    set(place, lookProgress(app))
    const counted = []
    try {
      for (const body of bodiesOf(action, request, own.read)) {
        const { results } = await post(action, { ...body, dry_run: true })
        const found = results.at(-1)
        counted.push({ body, found, number: found[`to_${action}`] })
      }
      confirm(app, action, counted, place)
    } catch (error) {
      set(place, problem(error))
    }
  }
  set(dialog,
    h('h2', { id: 'dialog-title' }, action === 'load' ? 'Load ' : `${NAMES[action]} from `, placeOf(action, request)),
    request.queues?.length > 1 && h('p', {}, bdis(request.queues), '. ',
      'Each queue has an action of its own', action === 'replay' && ', with these rates and limits', '.'),
    action !== 'load' && h('p', { class: 'muted small' },
      'Selection: ', request.where?.length ? h('code', {}, request.where.join(', ')) : 'all messages'),
    ...own.elements,
    h('div', { class: 'row' },
      h('button', { type: 'button', class: 'main', onclick: check }, 'Count messages'),
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel')),
    place)
  dialog.showModal()
}

// Opens the dialog for the rest of a saved file, after an earlier load.
export async function openLoad (app, file) {
  const { saved } = await get('saved')
  openAction(app, 'load', { file, skip: saved.find(each => each.file === file)?.loaded || 0 })
}
