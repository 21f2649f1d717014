import { answered } from '../../database/index.js'

/** Prometheus gives a scrape 10 s: one that took longer because the database is down would show nothing at all, not even that it is down. */
const LONGEST_MS = 7_000

/** @throws NoAnswer in time for the scrape, whatever the client's own limits are */
export function withinScrape<T>(count: Promise<T>): Promise<T> {
  return answered(count, LONGEST_MS)
}

/** The gauges of one scrape are collected at the same time and share one count. */
export function oncePerScrape<T>(count: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined
  return () => {
    running ??= count().finally(() => {
      running = undefined
    })
    return running
  }
}
