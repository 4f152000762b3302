// The dialog of a replay, drop or load: settings, the exact count, and the count typed.
import { get, post } from './api.js'
import { field, h, lookProgress, problem, select, set } from './dom.js'
import { count, messages } from './format.js'

const RAMPS = [
  ['1,2,5,20', 'slowly: 1, 2, 5, 20 a second'],
  ['5,20,100', 'faster: 5, 20, 100 a second'],
  ['', 'no ramp']
]
const NAMES = { replay: 'Replay', drop: 'Drop', load: 'Load' }
const dialog = document.getElementById('dialog')

function settings (name, request) {
  if (name !== 'replay') return { read: () => ({}), elements: [] }
  const limit = h('input', { type: 'number', min: 1, step: 1, value: request.limit ?? '', placeholder: 'all' })
  const ramp = select(RAMPS, request.ramp ?? '1,2,5,20')
  const step = h('input', { type: 'text', value: request.ramp_step ?? '10s', size: 6 })
  const rate = h('input', { type: 'number', min: 0, value: request.rate ?? 0 })
  const stop = h('input', { type: 'number', min: 0, step: 1, value: request.stop_after ?? 3 })
  return {
    elements: [h('div', { class: 'grid' },
      field('At most, the oldest first', limit),
      field('Begin', ramp),
      field('Each rate for', step),
      field('Then, messages a second', rate, '0: the last rate of the ramp; without a ramp, no limit'),
      field('Stop if so many are parked again', stop, '0: never'))],
    read: () => ({
      ...(limit.value && { limit: Number(limit.value) }),
      ...(ramp.value && { ramp: ramp.value, ramp_step: step.value }),
      rate: Number(rate.value),
      stop_after: Number(stop.value)
    })
  }
}

function loadProspect (found) {
  const queues = Object.entries(found.queues).map(([queue, number]) => `${queue} (${count(number)})`).join(', ')
  const loaded = found.skipped ? ` The first ${messages(found.skipped)} of the file were loaded before.` : ''
  return `${messages(found.to_load)} would go to ${queues}.${loaded}`
}

function dropProspect (found) {
  return `${messages(found.to_drop)} of ${count(found.parked)} in ${found.from} would be saved to a file here, ` +
    'then taken off the queue. You can load them again.'
}

function replayProspect (found) {
  const stays = [
    found.cannot_go && `${messages(found.cannot_go)} cannot go.`,
    found.replayed_too_often && `${messages(found.replayed_too_often)} were replayed too often.`,
    found.malformed && `${messages(found.malformed)} cannot be read.`
  ].filter(Boolean).join(' ')
  return `${messages(found.to_replay)} of ${count(found.parked)} in ${found.from} would go to ${found.to}. ${stays}`
}

const PROSPECTS = { load: loadProspect, drop: dropProspect, replay: replayProspect }

// Begins once the count that was shown is typed. The program refuses if another number is selected by then.
function confirm (app, name, body, found, place) {
  const number = found[`to_${name}`]
  set(place, h('p', {}, PROSPECTS[name](found)))
  if (!number) return
  const typed = h('input', { inputmode: 'numeric', autocomplete: 'off', size: 10 })
  const kind = name === 'drop' ? 'danger' : 'main'
  const go = h('button', { type: 'submit', class: kind, disabled: true }, `${NAMES[name]} ${messages(number)}`)
  const trouble = h('div')
  typed.addEventListener('input', () => { go.disabled = typed.value.trim() !== String(number) })
  place.append(h('form', {
    onsubmit: async event => {
      event.preventDefault()
      go.disabled = true
      try {
        await post(name, { ...body, expect: number })
        dialog.close()
        app.go('#/jobs')
      } catch (error) {
        set(trouble, problem(error))
      }
    }
  }, h('div', { class: 'row' }, field(`Type ${number} to go on`, typed), go), trouble))
  typed.focus()
}

function bodyOf (name, request, read) {
  if (name === 'load') return { file: request.file, ...(request.skip && { skip: request.skip }) }
  return { queue: request.queue, where: request.where || [], ...read() }
}

export function openAction (app, name, request) {
  const place = h('div', { 'aria-live': 'polite' })
  const own = settings(name, request)
  const check = async () => {
    set(place, lookProgress(app))
    const body = bodyOf(name, request, own.read)
    try {
      const { results } = await post(name, { ...body, dry_run: true })
      confirm(app, name, body, results.at(-1), place)
    } catch (error) {
      set(place, problem(error))
    }
  }
  set(dialog,
    h('h2', { id: 'dialog-title' }, `${NAMES[name]} from ${request.queue || request.file}`),
    name !== 'load' && h('p', { class: 'muted small' },
      'Selected: ', h('code', {}, (request.where || []).join(', ') || 'all')),
    ...own.elements,
    h('div', { class: 'row' },
      h('button', { type: 'button', class: 'main', onclick: check }, 'Count them'),
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel')),
    place)
  dialog.showModal()
}

// Opens the dialog for the rest of a saved file, after an earlier load.
export async function openLoad (app, file) {
  const { saved } = await get('saved')
  openAction(app, 'load', { file, skip: saved.find(each => each.file === file)?.loaded || 0 })
}
