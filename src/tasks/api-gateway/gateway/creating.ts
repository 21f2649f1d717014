import type { Handler } from '../../../phases/index.js'
import type { Collections } from '../collections.js'
import { type ApiGateway, COLLECTIONS } from '../documents.js'
import { databaseNameFor, hostNameFor, idText } from '../names.js'
import { troubleOf } from './child-trouble.js'
import { HeldGateway } from './held-gateway.js'

type Creating = Handler<'Created', ApiGateway>
type Kind = (gateway: HeldGateway, ...args: Parameters<Creating>) => ReturnType<Creating>

const DEFAULT_STAGE = 'default'

/** Makes a gateway's children, one kind a step, and waits until those with a lifecycle of their own are Created. */
export function creating(collections: Collections, baseDomain: string): Creating {
  const steps: Readonly<Record<string, Kind>> = {
    stage: createStage,
    domain: (gateway, doc, step) => createDomain(baseDomain, gateway, doc, step),
    children: awaitChildren,
  }
  return async (doc, step) => {
    await collections.ensureIndexes()
    const gateway = new HeldGateway(collections, doc, step)
    const kind = steps[step.name ?? ''] ?? createDatabase
    return kind(gateway, doc, step)
  }
}

/** Its document's `_id` is the gatewayId: it comes first and goes last, so nobody else has that gatewayId meanwhile. */
const createDatabase: Kind = async (gateway, _doc, step) => {
  if (gateway.idProblem) return step.park(gateway.idProblem)
  const creation = await gateway.create('gatewayDatabase', {
    _id: gateway.gatewayId,
    gateway: gateway.id,
    phase: 'Creating',
  })
  const owner = await gateway.otherOwner()
  if (owner !== undefined)
    return step.park(`gatewayId ${idText(gateway.gatewayId)} belongs to ApiGateway ${idText(owner)}`)
  if (typeof creation === 'object') {
    return step.park(
      `GatewayDatabase ${idText(gateway.gatewayId)} belongs to the gateway ${idText(creation.belongsTo)}`,
    )
  }
  if (creation === 'leaving') return step.wait('the database of an earlier gateway to be gone')
  return step.again({ step: 'stage' })
}

const createStage: Kind = async (gateway, _doc, step) => {
  const { gatewayId } = gateway
  await gateway.create('stage', { _id: { gatewayId, name: DEFAULT_STAGE }, name: DEFAULT_STAGE })
  return step.again({ step: 'domain' })
}

async function createDomain(baseDomain: string, ...[gateway, doc, step]: Parameters<Kind>): ReturnType<Creating> {
  const creation = await gateway.create('runtimeDomain', {
    _id: gateway.gatewayId,
    gateway: gateway.id,
    host: doc.customDomain ?? hostNameFor(gateway.gatewayId, doc.name, baseDomain),
    phase: 'Creating',
  })
  if (creation === 'leaving') return step.wait('the runtime domain of an earlier gateway to be gone')
  if (creation !== 'there') {
    const owner = idText(creation.belongsTo)
    return step.park(`RuntimeDomain ${idText(gateway.gatewayId)} belongs to the gateway ${owner}`)
  }
  return step.again({ step: 'children' })
}

const awaitChildren: Kind = async (gateway, _doc, step) => {
  const { collections, gatewayId } = gateway
  const [database, domain] = await Promise.all(
    (['gatewayDatabase', 'runtimeDomain'] as const).map(async (kind) => ({
      name: COLLECTIONS[kind],
      found: await collections.of(kind).findOne({ _id: gatewayId as never }),
    })),
  )
  for (const { name, found } of [database!, domain!]) {
    // Somebody removed it: made again.
    if (!found) return step.again({ step: 'database' })
    if (found['phase'] !== 'Created') return step.wait(troubleOf(name, found))
  }
  return step.moveTo('Created', {
    set: {
      database: database!.found?.['database'] ?? databaseNameFor(gatewayId),
      host: domain!.found?.['reservedHost'],
    },
  })
}
