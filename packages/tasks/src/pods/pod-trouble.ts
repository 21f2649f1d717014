import type { ContainerStatus, Pod, PodCondition, Terminated } from './pod.js'

/** The reason why a pod doesn't run, in Kubernetes' own word and as a sentence. */
export interface Trouble {
  /** `ImagePullBackOff`, `Unschedulable`, `CrashLoopBackOff`, `QuotaExceeded`, ... */
  readonly reason: string
  /** Begins with the reason: `ImagePullBackOff: pod web-x: the image 'shop:9' can't be pulled: ...` */
  readonly message: string
}

const MESSAGE_LENGTH = 600

/** The meaning of a kubelet's reasons; the rest are self-explanatory. */
const WAITING: Readonly<Record<string, (status: ContainerStatus) => string>> = {
  ImagePullBackOff: cantPull,
  ErrImagePull: cantPull,
  ErrImageNeverPull: cantPull,
  RegistryUnavailable: cantPull,
  InvalidImageName: ({ image }) => `'${image ?? ''}' can't be an image's name`,
  CreateContainerConfigError: () => "the container's configuration can't be created",
  CreateContainerError: () => "the container can't be created",
  RunContainerError: () => "the container can't be started",
}

function cantPull({ image }: ContainerStatus): string {
  return `the image '${image ?? ''}' can't be pulled`
}

/** Reasons that only mean that it takes a moment. */
const USUAL = ['ContainerCreating', 'PodInitializing']

/** The order of reasons, the worst first: a reader of one sentence must see that one. */
const RANKS: readonly RegExp[] = [
  /^(CrashLoopBackOff|OOMKilled|Error|Completed|ContainerCannotRun)$/,
  /Image|Registry/,
  /Container/,
  /^Unschedulable$/,
]

/**
 * The reason why these pods don't run, from their own status: the worst of their reasons, with the number of other pods that have the same one.
 * Pods that are being removed don't count. Undefined: they have no trouble, and only need time.
 */
export function podTrouble(pods: readonly Pod[]): Trouble | undefined {
  const troubles = pods
    .filter((pod) => pod.metadata.deletionTimestamp === undefined)
    .flatMap((pod) => troublesOf(pod).slice(0, 1))
    .sort((a, b) => rank(a) - rank(b))
  const worst = troubles[0]
  if (!worst) return undefined
  const alike = troubles.filter(({ reason }) => reason === worst.reason).length - 1
  const others = alike === 0 ? '' : ` (and ${alike} more ${alike === 1 ? 'pod' : 'pods'})`
  return { reason: worst.reason, message: `${shorten(worst.message)}${others}` }
}

function rank({ reason }: Trouble): number {
  const found = RANKS.findIndex((pattern) => pattern.test(reason))
  return found < 0 ? RANKS.length : found
}

function troublesOf(pod: Pod): Trouble[] {
  const { status = {} } = pod
  const about = `pod ${pod.metadata.name}`
  if (status.phase === 'Failed' && status.reason) return [trouble(status.reason, about, status.message)]
  const containers = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])]
  const ofContainers = containers.flatMap((container) => containerTrouble(about, container))
  return [...ofContainers, ...conditionTrouble(about, status.conditions ?? [])].sort((a, b) => rank(a) - rank(b))
}

function containerTrouble(about: string, status: ContainerStatus): Trouble[] {
  const { waiting, terminated } = status.state ?? {}
  const where = `${about}, container ${status.name}`
  if (waiting?.reason === 'CrashLoopBackOff') {
    const last = status.lastState?.terminated
    const how = last ? endedWith(last) : 'it ends'
    return [trouble('CrashLoopBackOff', where, `${how}, ${times(status.restartCount)}`)]
  }
  if (waiting?.reason && !USUAL.includes(waiting.reason)) {
    const words = WAITING[waiting.reason]?.(status)
    return [trouble(waiting.reason, where, [words, waiting.message].filter(Boolean).join(': '))]
  }
  if (terminated && terminated.exitCode !== 0) {
    return [trouble(terminated.reason ?? 'Error', where, endedWith(terminated))]
  }
  return []
}

const times = (restarts = 0) => (restarts === 1 ? 'restarted once' : `restarted ${restarts} times`)

/** `it ended with exit code 137 (OOMKilled: ...)` */
export function endedWith({ exitCode, signal, reason, message }: Terminated): string {
  const why = [reason, message].filter(Boolean).join(': ')
  const what = signal ? `exit code ${exitCode}, signal ${signal}` : `exit code ${exitCode}`
  return `it ended with ${what}${why === '' ? '' : ` (${why})`}`
}

function conditionTrouble(about: string, conditions: readonly PodCondition[]): Trouble[] {
  const failed = (type: string) => conditions.find((one) => one.type === type && one.status === 'False')
  const scheduled = failed('PodScheduled')
  if (scheduled) return [trouble(scheduled.reason ?? 'Unschedulable', about, scheduled.message)]
  return []
}

function trouble(reason: string, about: string, words: string | undefined): Trouble {
  return { reason, message: `${reason}: ${about}${words ? `: ${words}` : ''}` }
}

const shorten = (text: string) => (text.length > MESSAGE_LENGTH ? `${text.slice(0, MESSAGE_LENGTH)}...` : text)

/** A sentence for the message of a controller that may not create pods (quota, limits, pod security). */
export function creationTrouble(message: string): Trouble {
  const reason = /exceeded quota/i.test(message) ? 'QuotaExceeded' : 'FailedCreate'
  return { reason, message: shorten(`${reason}: its pods can't be created: ${message}`) }
}
