import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { durationMs } from '../../../src/time/index.js'
import { deployProgram } from '../programs.mjs'
import { KUSTOMIZE, objectsIn } from './render.js'

export const MONITORING = join(KUSTOMIZE, 'components/monitoring')

interface Rule {
  readonly alert?: string
  readonly record?: string
  readonly expr: string
  readonly for?: string
}

export async function rulesOf(): Promise<{ groups: { rules: Rule[] }[] }> {
  const [object] = objectsIn(await readFile(join(MONITORING, 'prometheusrule.yaml'), 'utf8'))
  return object!['spec']
}

interface Asked {
  readonly rules?: string
  readonly series?: string
  readonly queries?: readonly { readonly name: string; readonly expr: string; readonly at: number }[]
}

/** What Prometheus' own parser and engine say (go/rules). */
export async function ask(asked: Asked): Promise<{ problems: string[]; answers: Record<string, unknown> }> {
  const child = spawn(await deployProgram('rules'), { stdio: ['pipe', 'pipe', 'inherit'] })
  child.stdin.end(JSON.stringify(asked))
  return JSON.parse(await text(child.stdout))
}

const EVERY_S = 15
/** What Prometheus adds to the series of a target. */
const TARGET = 'namespace="a",pod="p1",job="phaselock"'

/** What Prometheus has scraped from one replica, each 15 s of its own time, which passes as fast as a test wants. */
export class Scrapes {
  private readonly series = new Map<string, string[]>()
  private count = 0

  /** @param exposed what /metrics answered; undefined: nothing. @param times how often in a row */
  add(exposed: string | undefined, times = 1): void {
    this.put(`up{${TARGET}}`, exposed === undefined ? '0' : '1', times)
    for (const [, name, labels = '', value] of (exposed ?? '').matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm))
      this.put(`${name}{${[TARGET, labels].filter((one) => one !== '').join()}}`, value!, times)
    this.count += times
  }

  /** As a rule's alert fires: its expression has had an answer at each evaluation, for as long as it says. */
  async firing(alert: string): Promise<unknown[]> {
    const rule = (await rulesOf()).groups.flatMap(({ rules }) => rules).find((one) => one.alert === alert)
    if (!rule) throw new Error(`expected an alert of the rules, got ${alert}`)
    const forS = rule.for === undefined ? 0 : durationMs(rule.for) / 1_000
    const evaluations = forS / EVERY_S + 1
    const expr =
      forS === 0
        ? rule.expr
        : `count_over_time((${rule.expr})[${evaluations * EVERY_S}s:${EVERY_S}s]) >= ${evaluations}`
    const series = [...this.series]
      .filter(([name]) => rule.expr.includes(name.slice(0, name.indexOf('{'))))
      .map(([name, values]) => `${name} ${this.filled(values).join(' ')}`)
    const queries = [{ name: alert, expr, at: (this.count - 1) * EVERY_S }]
    const { problems, answers } = await ask({ series: series.join('\n'), queries })
    const found = answers[alert]
    if (problems.length > 0 || !Array.isArray(found)) throw new Error(`${alert}: ${problems.join()} ${String(found)}`)
    return found
  }

  private put(name: string, value: string, times: number): void {
    const known = this.series.get(name) ?? []
    const before = this.filled(known)
    this.series.set(name, [...before, ...Array<string>(times).fill(value)])
  }

  /** `_`: it was not in that scrape. */
  private filled(values: readonly string[]): string[] {
    return [...values, ...Array<string>(this.count - values.length).fill('_')]
  }
}
