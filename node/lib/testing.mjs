import testing from './testing.js'

export const { Clock, Rehearsal, rehearse, seededRandom, startBroker } = testing
