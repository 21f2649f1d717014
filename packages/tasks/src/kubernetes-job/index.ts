export { type KubernetesJobSettings, kubernetesJobDefinition } from './definition.js'
export {
  JOB_COLLECTION,
  type JobFields,
  type JobResult,
  type JobState,
  type KubernetesJob,
} from './documents.js'
export {
  jobNameFor,
  type KubernetesJobLifecycles,
  type KubernetesJobOptions,
  kubernetesJobLifecycles,
} from './lifecycles.js'
export { type JobLook, removeJobs } from './look.js'
export { JOB_LABEL } from './manifest.js'
export { InvalidJob, type JobStep, runJob, type StepJob } from './run-job.js'
