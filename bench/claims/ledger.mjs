import { openSync, readFileSync, writeSync } from 'node:fs'

/** Comparable between the processes of one machine. */
export const nowMs = () => Number(process.hrtime.bigint()) / 1e6

/** What one process has begun and ended, in a file that survives `kill -9` of it: one write a line, nothing buffered. */
export function openLedger(file) {
  const descriptor = openSync(file, 'a')
  return {
    begun: (id) => writeSync(descriptor, `b ${id} ${nowMs()}\n`),
    ended: (id) => writeSync(descriptor, `e ${id} ${nowMs()}\n`),
  }
}

/**
 * @param files the ledgers of all processes
 * @param documents how many there were, with the ids 0 to documents - 1
 * @returns `firstMs`: when the first was begun; `lost`: never worked on to the end; `repeated`: work done again, each time; `overlapping`: documents that two
 *   worked on at the same time, what a lock is there to prevent
 */
export function account(files, documents) {
  const spans = Array.from({ length: documents }, () => [])
  for (const file of files) {
    for (const line of readFileSync(file, 'utf8').split('\n').filter(Boolean)) {
      const [kind, id, atMs] = line.split(' ')
      if (kind === 'b') spans[id].push({ file, fromMs: Number(atMs), toMs: undefined })
      else spans[id].findLast((span) => span.file === file && span.toMs === undefined).toMs = Number(atMs)
    }
  }
  const ended = spans.map((each) => each.filter(({ toMs }) => toMs !== undefined))
  return {
    firstMs: Math.min(...spans.flatMap((each) => each.map(({ fromMs }) => fromMs))),
    lost: ended.filter((each) => each.length === 0).length,
    repeated: ended.reduce((sum, each) => sum + Math.max(0, each.length - 1), 0),
    overlapping: ended.filter(overlap).length,
  }
}

function overlap(spans) {
  const sorted = spans.toSorted((one, other) => one.fromMs - other.fromMs)
  return sorted.some((span, i) => i > 0 && span.fromMs < sorted[i - 1].toMs)
}
