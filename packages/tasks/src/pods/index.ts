export { type ContainerSpec, checkFields, containerShape } from './container-shape.js'
export {
  type ContainerFields,
  checkPodSecurity,
  type EnvValue,
  type PodSecurity,
  type Quantities,
  type Quantity,
  type Resources,
} from './documents.js'
export type { ContainerStatus, Pod, PodCondition, Terminated } from './pod.js'
export { type Json, podTemplate } from './pod-template.js'
export { creationTrouble, endedWith, podTrouble, type Trouble } from './pod-trouble.js'
export { type Homed, ifPlaced, type Place, type Site, siteOf, type Where, watchOf, whereOf } from './where.js'
