import { expect, test } from '@jest/globals'
import { explore } from '../explore.js'
import { SharingMachine } from './machine.js'

test('what falls to a live replica that takes nothing is begun with within 5 s, whatever this one has to do', () => {
  expect(explore(new SharingMachine()).broken).toEqual({})
})

test('without an end of the preference: I11', () => {
  expect(Object.keys(explore(new SharingMachine(false), { until: 'I11' }).broken)).toEqual(['I11'])
})
