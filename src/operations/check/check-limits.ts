import { declareLimit, LIFECYCLES_COLLECTION, LIMITS_COLLECTION, readLimits } from '../../lock/index.js'
import { namedLimits } from '../../phases/index.js'
import { idTyped } from '../system/document-id.js'
import { type Checked, type CheckResult, type Finding, finding, mendable } from './finding.js'

/**
 * Finds limits that registered lifecycles name but that aren't stored, and those that were damaged by hand: documents that need them wait.
 */
export async function checkLimits({
  db,
  models,
  repair,
}: Pick<Checked, 'db' | 'models' | 'repair'>): Promise<CheckResult> {
  const registered = new Set<unknown>(await db.collection(LIFECYCLES_COLLECTION).distinct('_id'))
  const named = namedLimits(models.filter(({ name }) => registered.has(name)))
  const names = named.map(({ limit }) => limit)
  const { limits } = names.length > 0 ? await readLimits(db, names) : { limits: [] }
  const findings: Finding[] = limits.flatMap(({ name, damaged }) =>
    damaged === null ? [] : [finding(`limit ${name}`, damaged, `set it: phaselock limits set ${idTyped(name)}`)],
  )
  const stored = new Set(limits.map(({ name }) => name))
  for (const { limit, lifecycles, declared, needs } of named) {
    if (stored.has(limit)) continue
    const about = `limit ${limit}`
    const problem = `it isn't in ${LIMITS_COLLECTION}`
    if (declared === undefined) {
      const waits = `${problem}, so documents of ${lifecycles.join(', ')} that need it wait`
      findings.push(finding(about, waits, `set it: phaselock limits set ${idTyped(limit)} --slots ${needs}`))
      continue
    }
    const advice = 'declare it again: phaselock check --repair; replicas also do it when they next need a slot'
    const gone = { about, problem: `${problem}, though lifecycles declare ${declared} slots`, advice }
    findings.push(await mendable(gone, repair, () => declareLimit(db, limit, declared)))
  }
  return { check: 'limits', said: `${names.length} named by lifecycles`, findings }
}
