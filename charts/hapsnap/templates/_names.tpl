{{/* Names and labels. */}}

{{- define "hapsnap.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A name for what is in no namespace: two releases of one name do not collide. */}}
{{- define "hapsnap.clusterName" -}}
{{- $name := include "hapsnap.fullname" . -}}
{{- if eq $name .Release.Namespace }}{{ $name }}{{ else }}{{ printf "%s-%s" .Release.Namespace $name }}{{ end -}}
{{- end -}}

{{/* Arguments: the root context, and the component. */}}
{{- define "hapsnap.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "hapsnap.labels" -}}
{{ include "hapsnap.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: hapsnap
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of pods. The version of the chart is none: an upgrade that changes nothing else
must not restart HAProxy. */}}
{{- define "hapsnap.podLabels" -}}
{{ include "hapsnap.selector" . }}
app.kubernetes.io/part-of: hapsnap
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with .values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* metadata. Arguments: root, component, and perhaps name, namespace ("-" is none),
annotations and labels. */}}
{{- define "hapsnap.metadata" -}}
name: {{ default (printf "%s-%s" (include "hapsnap.fullname" .root) .component) .name }}
{{- if ne (default "" .namespace) "-" }}
namespace: {{ default .root.Release.Namespace .namespace }}
{{- end }}
labels:
{{- include "hapsnap.labels" . | nindent 2 }}
{{- with .labels }}
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge (dict) (default dict .annotations) (default dict .root.Values.commonAnnotations) }}
annotations:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "hapsnap.serviceAccount" -}}
{{- $account := (default (index .root.Values .component) .values).serviceAccount -}}
{{- if $account.create }}{{ default (printf "%s-%s" (include "hapsnap.fullname" .root) .component) $account.name }}{{ else }}{{ default "default" $account.name }}{{ end -}}
{{- end -}}

{{/* An image. Arguments: root, image, tag. */}}
{{- define "hapsnap.image" -}}
{{- $registry := default .image.registry (dig "imageRegistry" "" (default dict .root.Values.global)) -}}
{{- with $registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .image.repository }}:{{ default .tag .image.tag }}{{ with .image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "hapsnap.pullSecrets" -}}
{{- with concat (default list .Values.imagePullSecrets) (default list (dig "imagePullSecrets" list (default dict .Values.global))) | uniq }}
imagePullSecrets:
{{- range . }}
- name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "hapsnap.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What the pods of both programs have in common. Arguments: root, component, values. */}}
{{- define "hapsnap.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .values.affinity }}
affinity:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range .values.topologySpreadConstraints }}
- {{ if .labelSelector }}{{ toYaml . | nindent 2 | trim }}{{ else }}{{ toYaml (merge (dict "labelSelector" (dict "matchLabels" (include "hapsnap.selector" $ | fromYaml))) .) | nindent 2 | trim }}{{ end }}
{{- end }}
{{- else if kindIs "slice" .values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
    {{- include "hapsnap.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The Secret with the compiler's report for the page, "" where nobody reads it. */}}
{{- define "hapsnap.reportSecret" -}}
{{- if and .Values.compiler.enabled .Values.pusher.enabled .Values.pusher.ui.enabled -}}
{{- include "hapsnap.fullname" . }}-compiler-report
{{- end -}}
{{- end -}}
