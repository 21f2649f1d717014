{{- define "phaselock.name" -}}
{{- if contains "phaselock" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-phaselock" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "phaselock.selector" -}}
app.kubernetes.io/name: phaselock
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "phaselock.labels" -}}
{{ include "phaselock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "phaselock.secret" -}}
{{- .Values.mongodb.existingSecret | default (include "phaselock.name" .) }}
{{- end }}

{{- define "phaselock.usesKubernetes" -}}
{{- if ne .Values.kubernetesTasks.rights "none" }}true{{ end }}
{{- end }}
