import type { Document } from 'mongodb'
import { awaitsIn, childListsIn } from '../../lock/index.js'
import { openChild } from '../inspect/children.js'
import { type Found, readDocuments } from '../inspect/find.js'
import { idText } from '../system/document-id.js'
import { modelOf, type System } from '../system/system.js'
import type { Verdict } from './term.js'

/** What another document, or one child of many, waits for in its turn. */
export interface Awaited {
  /** For the evidence of a sleep. */
  readonly evidence: Document
  /** For its sentence: `order 4711: Parked because 'no ink'`. */
  readonly text: string
}

/**
 * What is known of the children or of the document that a sleeping one waits for.
 * @param judge the judgement of another document
 */
export async function awaitedBy(
  system: System,
  { lifecycle, document, condition }: Found,
  judge: (found: Found) => Promise<Verdict>,
): Promise<Awaited | undefined> {
  if (condition.kind !== 'sleeping') return undefined
  const awaits = awaitsIn(document[modelOf(system, lifecycle).settings.progress])
  if (!awaits) return undefined
  if (awaits.kind === 'document') {
    const { lifecycle: of, id, phases } = awaits
    const other = await judged(system, of, id, judge)
    return {
      evidence: { ...other.evidence, until: phases },
      text: `${other.text} (it waits until that is in ${phases.join(' or ')})`,
    }
  }
  const open = await openChild(system, { lifecycle, document })
  const { rule, parked } = awaits
  const lists = childListsIn(document[modelOf(system, lifecycle).settings.progress])
  const children = { rule, parked, lists }
  if (!open) return { evidence: { children }, text: 'no child of it is open' }
  const child = await judged(system, open.lifecycle, open._id, judge)
  return { evidence: { children, child: child.evidence }, text: `of its children, ${child.text}` }
}

async function judged(
  system: System,
  lifecycle: string,
  id: unknown,
  judge: (found: Found) => Promise<Verdict>,
): Promise<Awaited> {
  const name = `${lifecycle} ${idText(id)}`
  const model = system.models.find((one) => one.name === lifecycle)
  const about = { lifecycle, document: id }
  if (!model) return { evidence: { ...about, known: false }, text: `${name}: nothing is known of its lifecycle here` }
  const [found] = await readDocuments(system, model, { _id: id as never }, 1)
  if (!found) return { evidence: { ...about, exists: false }, text: `${name}: there is no such document` }
  const { sentence, blockedBy = null, terms } = await judge(found)
  const awaited = terms.find(({ name }) => name === 'sleep')?.evidence['awaited'] ?? null
  const evidence = { ...about, phase: found.document['phase'], sentence, blockedBy, awaited }
  return { evidence, text: `${name}: ${sentence.replace(/\.$/, '')}` }
}
