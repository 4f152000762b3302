// Health: what `backhop doctor` finds, with the commands to type.
import { post } from './api.js'
import { button, copyButton, h, set } from './dom.js'

function finding (each) {
  const isProblem = each.severity === 'problem'
  return h('section', { class: `card ${isProblem ? 'problem' : 'note'}` },
    h('h3', {}, h('span', { class: `badge ${isProblem ? 'danger' : 'warn'}` }, each.severity), ` ${each.finding}`),
    each.meaning && h('p', {}, each.meaning),
    each.advice && h('p', {}, h('b', {}, 'What to do: '), each.advice),
    each.command && h('div', { class: 'command' }, h('code', {}, each.command), copyButton(each.command)))
}

export default function health (app, main) {
  const place = h('div', { 'aria-live': 'polite' })
  const draw = ({ results, notice }) => {
    const sorted = [...results].sort((a, b) => (b.severity === 'problem') - (a.severity === 'problem'))
    set(place,
      sorted.length ? h('div', {}, sorted.map(finding)) : h('div', { class: 'card ok' }, 'No problems found.'),
      notice ? h('p', { class: 'muted small' }, notice) : '')
  }
  const examine = async () => {
    set(place, h('p', {}, 'Checking. This takes up to 15 s.'))
    try {
      app.health = await post('doctor', {})
      draw(app.health)
    } catch (error) {
      set(place)
      throw error
    }
  }
  main.append(h('h2', {}, 'Health'),
    h('p', {}, 'Checks the broker, the topology, the queues and their consumers. ',
      'It sends probes of its own through the wait queues, and changes nothing else.'),
    button('Check now', examine, 'main'), place)
  if (app.health) draw(app.health)
}
