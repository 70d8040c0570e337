{{/* A role and its binding, for one concern. Arguments: root, component, concern, rules
(a list), and namespace, which is "" for a ClusterRole; account, by default the component's;
bound, by default true. */}}
{{- define "hapsnap.role" -}}
{{- $name := printf "%s-%s-%s" (include "hapsnap.fullname" .root) .component .concern -}}
{{- /* Releases of several namespaces may have one name, and roles in namespaces of others. */ -}}
{{- if not (has .namespace (list .root.Release.Namespace (include "hapsnap.storeNamespace" .root))) }}{{ $name = printf "%s-%s-%s" (include "hapsnap.clusterName" .root) .component .concern }}{{ end -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") -}}
{{- $metadata := dict "root" .root "component" .component "name" $name "namespace" (default "-" .namespace) -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  {{- include "hapsnap.metadata" $metadata | nindent 2 }}
rules:
{{- toYaml .rules | nindent 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  {{- include "hapsnap.metadata" $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
- kind: ServiceAccount
  name: {{ if .account }}{{ .account }}{{ else }}{{ include "hapsnap.serviceAccount" . }}{{ end }}
  namespace: {{ .root.Release.Namespace }}
{{ end -}}

{{/* The same role in the whole cluster, or in each namespace of tenants. Arguments as above,
without namespace. */}}
{{- define "hapsnap.tenantRole" -}}
{{- $tenants := include "hapsnap.tenants" .root -}}
{{- if not $tenants -}}
{{- include "hapsnap.role" (merge (dict "namespace" "") .) -}}
{{- else -}}
{{- range splitList " " $tenants -}}
{{- include "hapsnap.role" (merge (dict "namespace" .) $) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The same for Secrets or ConfigMaps: with scope: named, by their names. Arguments: root,
component, concern, kind, names. */}}
{{- define "hapsnap.namedRole" -}}
{{- $rule := dict "apiGroups" (list "") "resources" (list .kind) "verbs" (list "get" "list" "watch") -}}
{{- if ne .root.Values.rbac.scope "named" -}}
{{- include "hapsnap.tenantRole" (merge (dict "rules" (list $rule)) .) -}}
{{- else -}}
{{- $byNamespace := dict -}}
{{- range .names -}}
{{- $parts := splitn "/" 2 . -}}
{{- $_ := set $byNamespace $parts._0 (append (default list (index $byNamespace $parts._0)) $parts._1) -}}
{{- end -}}
{{- range $namespace := keys $byNamespace | sortAlpha -}}
{{- include "hapsnap.role" (merge (dict "namespace" $namespace "rules" (list (merge (dict "resourceNames" (index $byNamespace $namespace | uniq | sortAlpha)) $rule))) $) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The rules of a Lease. */}}
{{- define "hapsnap.leaseRules" -}}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [{{ . }}], verbs: [get, update]}
{{- end -}}

{{- define "hapsnap.eventRules" -}}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
{{- end -}}
