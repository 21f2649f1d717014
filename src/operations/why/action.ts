import type { Pause } from '../../lock/index.js'
import { Paused } from '../../lock/index.js'
import { typed } from '../../options/index.js'
import { idTyped } from '../system/document-id.js'
import type { Facts, Judged } from './facts.js'
import { type PredictedAction, predictOn } from './predict.js'
import type { Term, TermName, Verdict } from './term.js'

/** The smallest action for the reason why a document doesn't go on. */
export interface Action {
  readonly kind: string
  /** To be pasted into a shell. */
  readonly command: string
  /** What it is for. */
  readonly text: string
  /** What it would do; absent: it isn't an action on this document. */
  readonly prediction?: {
    readonly would: string
    readonly sentence: string
    /** The term that would stand in the way then; null: none. */
    readonly blockedBy: TermName | null
  }
}

type Proposal = Pick<Action, 'kind' | 'command' | 'text'> & { readonly predicted?: PredictedAction }

export async function actionFor(judged: Judged, verdict: Verdict, facts: Facts): Promise<Action | undefined> {
  const first = verdict.terms.find((term) => term.holds === false)
  const proposal = first && proposed(judged, first, facts)
  if (!proposal) return undefined
  const { predicted, ...action } = proposal
  if (!predicted) return action
  const { would, why, text } = await predictOn(judged, predicted, facts)
  const blockedBy = why?.blockedBy ?? null
  return { ...action, prediction: { would, sentence: would === 'refused' ? text : (why?.sentence ?? text), blockedBy } }
}

function proposed(judged: Judged, { name, evidence }: Term, { index }: Facts): Proposal | undefined {
  const { found, model } = judged
  const id = idTyped(found.document['_id'])
  switch (name) {
    case 'shape':
      if (evidence['field'] !== 'lockedAt') return undefined
      return { kind: 'check', command: 'phaselock check --repair', text: 'repairs documents of a broken lockedAt' }
    case 'removal':
      return { kind: 'callbacks', command: 'phaselock callbacks', text: 'lists what is to be delivered first' }
    case 'park':
      return {
        ...{ kind: 'unpark', command: `phaselock unpark ${id}`, text: 'gives it another try' },
        predicted: { action: 'unpark' },
      }
    case 'pause':
      return resumeOf(judged)
    case 'sleep':
      return awakened(evidence, id)
    case 'handler': {
      const ways = model.rules.filter(({ from }) => from.includes(found.document['phase']))
      const [way] = ways
      if (!way || ways.length > 1) return undefined
      const command = `phaselock set-state ${id} ${typed(way.when)}`
      const predicted = { action: 'set-state', state: way.when } as const
      return { kind: 'set-state', command, text: `leads to ${way.moveTo}`, predicted }
    }
    case 'limit':
      return limitAction(evidence)
    case 'index':
      if (!('value' in index)) return undefined
      return { kind: 'check', command: 'phaselock check --repair', text: 'creates the indexes that are missing' }
    default:
      return undefined
  }
}

function awakened(evidence: Term['evidence'], id: string): Proposal | undefined {
  switch (evidence['kind']) {
    case 'question': {
      const options = evidence['options'] as readonly string[]
      const [option = 'some text'] = options
      const command = `phaselock answer ${id} ${options.length > 0 ? '<option>' : '<text>'}`
      const text = options.length > 0 ? `takes ${options.join(' or ')}` : 'takes any text'
      return { kind: 'answer', command, text, predicted: { action: 'answer', option } }
    }
    // What they wait for decides: a wake only lets them look again.
    case 'children':
    case 'document':
      return undefined
    default: {
      const text = evidence['kind'] === 'outbox' ? 'looks again; its callbacks come first' : 'ends its sleep'
      return { kind: 'wake', command: `phaselock wake ${id}`, text, predicted: { action: 'wake' } }
    }
  }
}

function resumeOf({ found, inForce, model }: Judged): Proposal | undefined {
  const { phase, _id } = found.document
  const all = new Paused(inForce.pauses).of(phase, _id)
  const [pause] = all
  if (!pause) return undefined
  const scope: Readonly<Record<Pause['what'], string>> = {
    all: '--all',
    lifecycle: typed(model.name),
    phase: `${typed(model.name)} --phase ${typed(String(phase))}`,
    document: `${typed(model.name)} ${idTyped(_id)}`,
  }
  const isOne = all.filter(({ what }) => what === pause.what).length === 1
  const command = `phaselock resume ${scope[pause.what]}${isOne ? '' : ` --of ${typed(pause.by)}`}`
  return { kind: 'resume', command, text: `ends the pause by ${pause.by}`, predicted: { action: 'resume', pause } }
}

function limitAction({ limit, paused, exists, slots, needs, declared }: Term['evidence']): Proposal | undefined {
  const name = typed(String(limit))
  if (paused) return { kind: 'limits', command: `phaselock limits resume ${name}`, text: 'ends the pause of the limit' }
  if (exists && slots !== null && slots >= needs) return undefined
  const enough = (declared ?? 0) >= needs ? 'declared' : needs
  return { kind: 'limits', command: `phaselock limits set ${name} --slots ${enough}`, text: 'gives it slots' }
}
