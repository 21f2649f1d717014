{{- define "phaselock.taskRules" -}}
# runtime-domain
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list, watch, create, patch, delete]
# A certificate's key goes with it.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, delete]
# instance
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# kubernetes-job
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [list]
{{- end }}

{{- define "phaselock.subjects" -}}
- kind: ServiceAccount
  name: {{ include "phaselock.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
