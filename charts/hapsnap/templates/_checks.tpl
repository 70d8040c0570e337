{{/* What values cannot be, with what to do. The schema has the rest. */}}
{{- define "hapsnap.checks" -}}
{{- $v := .Values -}}
{{- $config := include "hapsnap.config" . | fromYaml -}}
{{- if and $v.pusher.enabled (not $v.haproxy.enabled) (not $v.fleet.instances) (not $v.fleet.pods) -}}
{{- fail "the pusher has no instances: set haproxy.enabled, list them in fleet.instances or fleet.pods, or set pusher.enabled to false" -}}
{{- end -}}
{{- if $v.waf.enabled -}}
{{- if not $v.haproxy.enabled -}}
{{- fail "waf.enabled: the agent runs in pods of HAProxy, and haproxy.enabled is false. Run one yourself, and set compiler.config.waf" -}}
{{- end -}}
{{- if or (dig "waf" "service" "" (default dict $v.compiler.config)) (dig "waf" "socket" "" (default dict $v.compiler.config)) -}}
{{- fail "compiler.config.waf names another agent than that of waf.enabled: set one of the two" -}}
{{- end -}}
{{- end -}}
{{- if $v.haproxy.enabled -}}
{{- if not (include "hapsnap.pusherMakes" .) -}}
{{- if not $v.haproxy.dataplane.existingSecret -}}
{{- fail "haproxy.dataplane.existingSecret is missing, the Secret with the user of the Dataplane API: with pusher.enabled: false, or with fleet.pods, nobody else makes it" -}}
{{- end -}}
{{- if and $v.haproxy.dataplane.tls.enabled (not $v.haproxy.dataplane.tls.existingSecret) (not $v.certManager.enabled) -}}
{{- fail (printf "haproxy.dataplane.tls.existingSecret is missing, a Secret with tls.crt, tls.key and ca.crt for %s-haproxy.%s.svc: with pusher.enabled: false, or with fleet.pods, nobody else makes it but certManager.enabled" (include "hapsnap.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- end -}}
{{- if and $v.haproxy.dataplane.tls.caSecret (not $v.haproxy.dataplane.tls.existingSecret) (not $v.certManager.enabled) -}}
{{- fail "haproxy.dataplane.tls.caSecret is the authority of a certificate of your own: set haproxy.dataplane.tls.existingSecret too" -}}
{{- end -}}
{{- if dig "hardStopAfter" "" (default dict $v.compiler.config) -}}
{{- fail "compiler.config.hardStopAfter: set haproxy.drain.seconds, which it follows from, as does how long a pod may take to end" -}}
{{- end -}}
{{- if and $v.monitoring.podMonitor.enabled (not (dig "prometheus" "enabled" true $config.status)) -}}
{{- fail "monitoring.podMonitor: HAProxy has no metrics with compiler.config.status.prometheus.enabled: false. Set one of the two otherwise" -}}
{{- end -}}
{{- $low := false -}}
{{- range include "hapsnap.trafficPorts" . | fromYamlArray }}{{ if lt (int .port) 1024 }}{{ $low = true }}{{ end }}{{ end -}}
{{- if and $v.haproxy.hostNetwork $low (not $v.haproxy.lowPortsOnNodes) -}}
{{- fail "haproxy.hostNetwork: a pod in the network of its node may not open ports below 1024. Set compiler.config.http.port and compiler.config.https.port to others, or net.ipv4.ip_unprivileged_port_start=0 on the nodes and haproxy.lowPortsOnNodes" -}}
{{- end -}}
{{- if not (include "hapsnap.statusPort" . | int) -}}
{{- fail "compiler.config.status.port is 0: the probes of HAProxy need it" -}}
{{- end -}}
{{- $opened := dict (printf "%s/TCP" (include "hapsnap.statusPort" .)) "the status port" (printf "%d/TCP" (int $v.haproxy.dataplane.port)) "haproxy.dataplane.port" -}}
{{- if $v.waf.enabled -}}
{{- $port := printf "%d/TCP" (int $v.waf.port) -}}
{{- with get $opened $port -}}
{{- fail (printf "port %s of HAProxy's pods is %s and waf.port: give each a port of its own" $port .) -}}
{{- end -}}
{{- $_ := set $opened $port "waf.port" -}}
{{- end -}}
{{- if gt (include "hapsnap.statusPort" . | int) 65535 -}}
{{- fail (printf "compiler.config.status.port is %s: use 1 to 65535" (include "hapsnap.statusPort" .)) -}}
{{- end -}}
{{- range include "hapsnap.trafficPorts" . | fromYamlArray -}}
{{- $port := printf "%d/%s" (int .port) .protocol -}}
{{- if or (lt (int .port) 0) (gt (int .port) 65535) -}}
{{- fail (printf "port %s of HAProxy's pods, which is %s: use 1 to 65535" $port .name) -}}
{{- end -}}
{{- if hasKey $opened $port -}}
{{- fail (printf "port %s of HAProxy's pods is %s and %s: give each a port of its own, or name it once. For a Gateway at 80 or 443 set compiler.config.http.port or compiler.config.https.port to another, or to 0" $port (get $opened $port) .name) -}}
{{- end -}}
{{- $_ := set $opened $port .name -}}
{{- end -}}
{{- if $v.haproxy.service.enabled -}}
{{- $offered := dict -}}
{{- range include "hapsnap.servicePorts" . | fromYamlArray -}}
{{- $port := printf "%d/%s" (int .port) (default "TCP" .protocol) -}}
{{- if or (lt (int .port) 1) (gt (int .port) 65535) -}}
{{- fail (printf "port %s of the traffic Service, which is %s: use 1 to 65535" $port .name) -}}
{{- end -}}
{{- if hasKey $offered $port -}}
{{- fail (printf "port %s of the traffic Service is %s and %s: change haproxy.service" $port (get $offered $port) .name) -}}
{{- end -}}
{{- $_ := set $offered $port .name -}}
{{- end -}}
{{- if not $offered -}}
{{- fail "haproxy.service has no port, as none of HAProxy's is open, or offered: set haproxy.service.enabled to false, or open one" -}}
{{- end -}}
{{- end -}}
{{- with $v.store.url -}}
{{- range splitList "&" (regexReplaceAll "^[^?]*\\??" . "") -}}
{{- if and . (not (regexMatch "^(branch|review|deliver)=." .)) -}}
{{- fail (printf "store.url: %q is not known after ?. There can be branch=NAME, review=NAME and deliver=NAMESPACE/NAME" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $v.store.gc.enabled -}}
{{- $of := "(\\*|\\?|%[1]s(-%[1]s)?)(/[0-9]+)?" -}}
{{- $fields := list -}}
{{- range list "[0-5]?[0-9]" "([01]?[0-9]|2[0-3])" "(0?[1-9]|[12][0-9]|3[01])" "(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)" "([0-6]|sun|mon|tue|wed|thu|fri|sat)" -}}
{{- $one := printf $of . -}}
{{- $fields = append $fields (printf "%[1]s(,%[1]s)*" $one) -}}
{{- end -}}
{{- $form := printf "^\\s*(@(yearly|annually|monthly|weekly|daily|midnight|hourly|every [0-9a-z.]+)|%s)\\s*$" (join "\\s+" $fields) -}}
{{- if not (regexMatch $form (lower $v.store.gc.schedule)) -}}
{{- fail (printf "store.gc.schedule is %q: use five fields as for cron, minute, hour, day, month and weekday, such as \"17 3 * * *\", or a word such as @daily" $v.store.gc.schedule) -}}
{{- end -}}
{{- end -}}
{{- with $v.haproxy.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- fail "haproxy.autoscaling.minReplicas is more than maxReplicas" -}}
{{- end -}}
{{- end -}}
{{- if and $v.haproxy.autoscaling.enabled (eq $v.haproxy.kind "DaemonSet") -}}
{{- fail "haproxy.autoscaling: a DaemonSet has a pod on each node and cannot be scaled; use kind: Deployment" -}}
{{- end -}}
{{- end -}}
{{- if and $v.gatewayAPI.fleet (not $v.gatewayAPI.enabled) -}}
{{- fail "gatewayAPI.fleet is for Gateways: set gatewayAPI.enabled, and their ports in gatewayAPI.ports" -}}
{{- end -}}
{{- if and $v.gatewayAPI.fleet (ne $v.rbac.scope "cluster") (not (has .Release.Namespace (concat $v.rbac.namespaces (default list $config.namespaces)))) -}}
{{- fail (printf "gatewayAPI.fleet is for Gateways of the namespace %s of the release, which is not among rbac.namespaces" .Release.Namespace) -}}
{{- end -}}
{{- if and $v.gatewayAPI.provisioner.enabled (or (not $v.gatewayAPI.enabled) $v.gatewayAPI.fleet (not $v.compiler.enabled)) -}}
{{- fail "gatewayAPI.provisioner is for the release that has the class: set gatewayAPI.enabled, compiler.enabled and no gatewayAPI.fleet" -}}
{{- end -}}
{{- if and $v.pusher.enabled (regexMatch "^(0+([.]0+)?[a-z]+)+$" $v.pusher.drainTime) -}}
{{- fail "pusher.drainTime is 0: name the time for which an endpoint that is gone keeps its connections" -}}
{{- end -}}
{{- if and (has "none" $v.pusher.refuseEndpoints) (gt (len $v.pusher.refuseEndpoints) 1) -}}
{{- fail "pusher.refuseEndpoints: none stands alone" -}}
{{- end -}}
{{- if and $v.pusher.enabled $v.pusher.ui.enabled (eq (int $v.pusher.port) (int $v.pusher.ui.port)) -}}
{{- fail "pusher.port and pusher.ui.port are the same: give the page a port of its own" -}}
{{- end -}}
{{- if and $v.compiler.webhook.enabled $v.compiler.webhook.caBundle (not $v.compiler.webhook.existingSecret) -}}
{{- fail "compiler.webhook.caBundle is the authority of a certificate of your own: set compiler.webhook.existingSecret too" -}}
{{- end -}}
{{- if and $v.compiler.webhook.enabled $v.compiler.webhook.existingSecret (not $v.compiler.webhook.caBundle) -}}
{{- fail "compiler.webhook.caBundle is missing: the authority that signed the certificate in compiler.webhook.existingSecret, in base64" -}}
{{- end -}}
{{- if and (ne $v.rbac.scope "cluster") (not $v.rbac.namespaces) (not (dig "namespaces" list (default dict $v.compiler.config))) -}}
{{- fail (printf "rbac.scope is %s and rbac.namespaces is empty: name the namespaces that are read" $v.rbac.scope) -}}
{{- end -}}
{{- with $v.store.signing -}}
{{- if and .allowedSignersConfigMap (or (and $v.compiler.enabled (not .compilerSecret)) (and $v.pusher.enabled (not .pusherSecret))) -}}
{{- fail "store.signing: with allowedSignersConfigMap both programs need a key: set compilerSecret and pusherSecret" -}}
{{- end -}}
{{- end -}}
{{- if and (include "hapsnap.inCluster" .) (gt (len (include "hapsnap.storeNamespace" .)) 63) -}}
{{- fail (printf "store.namespace: %s, of the names of namespace and release, is longer than 63 characters; name a shorter one" (include "hapsnap.storeNamespace" .)) -}}
{{- end -}}
{{- if regexMatch "^[^/]*//[^/]*:[^/]*@" (default "" $v.store.url) -}}
{{- fail "store.url holds a password, which everybody could read who sees the arguments of the pods: leave it out, put it into a Secret, and name that with store.git.existingSecret and store.git.tokenKey" -}}
{{- end -}}
{{- if and $v.store.url (hasPrefix "configmap:" $v.store.url) -}}
{{- fail "store.url is for git: name ConfigMaps with store.namespace and store.name, so that the roles are made for them" -}}
{{- end -}}
{{- end -}}
