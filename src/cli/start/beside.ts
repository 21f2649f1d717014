import type { Settings } from '../../config/index.js'
import type { Alongside } from '../../phases/index.js'

/**
 * What runs beside each lifecycle of a replica, as the settings say.
 * @throws PodUnknown
 */
export async function besideLifecycles(settings: Settings): Promise<readonly Alongside[]> {
  if (settings.earlyRecovery === 'off') return []
  const { earlyRecovery } = await import('../../kubernetes/index.js')
  return [earlyRecovery()]
}
