export { kubernetesReportText } from './result.js'
export { runKubernetes } from './run-kubernetes.js'
