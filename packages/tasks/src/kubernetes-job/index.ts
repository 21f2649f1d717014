export { type KubernetesJobSettings, kubernetesJobDefinition } from './definition.js'
export { JOB_COLLECTION, type KubernetesJob } from './documents.js'
export {
  jobNameFor,
  type KubernetesJobLifecycles,
  type KubernetesJobOptions,
  kubernetesJobLifecycles,
} from './lifecycles.js'
export { removeJobs } from './look.js'
export { JOB_LABEL } from './manifest.js'
export { InvalidJob, runJob, type StepJob } from './run-job.js'
