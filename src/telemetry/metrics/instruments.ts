import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { answered } from '../../database/index.js'

/** The value of a gauge for some labels. */
export type Row<L extends string> = readonly [labels: Readonly<Record<L, string>>, value: number]

/** Creates metrics in one registry; all their names begin with `phaselock_`. */
export class Instruments {
  constructor(private readonly registry: Registry) {}

  /** @param collect called before each scrape */
  counter<L extends string>(name: string, help: string, labelNames: readonly L[] = [], collect = () => {}): Counter<L> {
    return new Counter({ ...this.common(name, help, labelNames), collect })
  }

  histogram<L extends string>(name: string, help: string, labelNames: readonly L[], buckets: number[]): Histogram<L> {
    return new Histogram({ ...this.common(name, help, labelNames), buckets })
  }

  /**
   * @param rows called at each scrape; labels that aren't among them aren't shown. Without it values are set from outside
   * @param aggregator combines the values of several workers: their sum, minimum or maximum
   */
  gauge<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[],
    rows?: () => Iterable<Row<L>> | Promise<Iterable<Row<L>>>,
    aggregator: 'sum' | 'min' | 'max' = 'sum',
  ): Gauge<L> {
    return new Gauge<L>({
      ...this.common(name, help, labelNames),
      aggregator,
      async collect() {
        if (!rows) return
        let found: Row<L>[] = []
        try {
          found = [...(await rows())]
        } catch (error) {
          // One gauge that can't be determined must not hide all others. A warning is shown once for each text.
          warnOnce(`phaselock_${name} is not shown: ${String(error)}`)
        }
        this.reset()
        if (labelNames.length === 0) this.remove() // without labels it is 0 otherwise
        for (const [labels, value] of found) this.set(labels, value)
      },
    })
  }

  private common<L extends string>(name: string, help: string, labelNames: readonly L[]) {
    return { name: `phaselock_${name}`, help, labelNames: [...labelNames], registers: [this.registry] }
  }
}

const warned = new Set<string>()
const MOST_WARNED = 100

function warnOnce(text: string): void {
  if (warned.has(text) || warned.size >= MOST_WARNED) return
  warned.add(text)
  process.emitWarning(text)
}

/** Prometheus allows a scrape 10 s: one that took longer because the database is down would show nothing at all, not even that it is down. */
const LONGEST_MS = 7_000

/** @throws NoAnswer in time for the scrape, whatever the client's own limits are */
export const withinScrape = <T>(count: Promise<T>): Promise<T> => answered(count, LONGEST_MS)

/** Shares one count among the gauges of a scrape, which are collected at the same time. */
export function oncePerScrape<T>(count: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined
  return () => {
    running ??= count().finally(() => {
      running = undefined
    })
    return running
  }
}
