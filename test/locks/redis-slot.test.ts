import { expect, test } from '@jest/globals'
import { keyBeside } from '../../src/locks/providers/redis-slot.js'

test('where a fence is kept stays as it was where that worked', () => {
  expect(keyBeside('job-lock:default:x', 'fence')).toBe('fence:{job-lock:default:x}')
  expect(keyBeside('job-lock:default:{tag}x', 'fence')).toBe('fence:job-lock:default:{tag}x')
})
