{{/* What the schema of the values cannot say. Each fault is a sentence that names the value; nothing is rendered. */}}
{{- define "outrider.checks" -}}
{{- if has .Release.Namespace (list "default" "kube-system" "kube-public" "kube-node-lease") }}
{{- fail (printf "the namespace %s belongs to Kubernetes: install into one of its own, say --namespace outrider" .Release.Namespace) }}
{{- end }}
{{- range $name := list "autoscaler" "head" "ingress" "draft" "verify" }}
{{- include "outrider.checkCpu" (dict "name" $name "pool" (get $.Values $name)) }}
{{- end }}
{{- include "outrider.checkMemory" (dict "name" "head" "pool" (merge (dict "sharedMemory" "2Gi") .Values.head)) }}
{{- range $name := list "ingress" "draft" "verify" }}
{{- include "outrider.checkMemory" (dict "name" $name "pool" (get $.Values $name)) }}
{{- if lt (int $.Values.rayClusterDeletionDelaySeconds) (mul 2 (get $.Values $name).terminationGracePeriodSeconds | int) }}
{{- fail (printf "rayClusterDeletionDelaySeconds: at least twice %s.terminationGracePeriodSeconds, or an old cluster is deleted while its answers end (got %v)" $name $.Values.rayClusterDeletionDelaySeconds) }}
{{- end }}
{{- end }}
{{- range $name := list "head" "ingress" "draft" "verify" }}
{{- include "outrider.checkPlaces" (dict "name" $name "pool" (get $.Values $name)) }}
{{- include "outrider.checkVariables" (dict "name" $name "pool" (get $.Values $name)) }}
{{- end }}
{{- if and .Values.gateway.enabled (eq .Values.gateway.hostname .Values.gateway.healthHostname) }}
{{- fail "gateway.healthHostname: must differ from gateway.hostname: routes of gRPC and HTTP may not share one" }}
{{- end }}
{{- range $index, $one := .Values.networkPolicy.apiServerCIDRs }}
{{- if not (include "outrider.isBlock" $one) }}
{{- fail (printf "networkPolicy.apiServerCIDRs[%d]: an address and the length of its prefix are needed, such as 10.0.0.0/8 or fd00::/8 (got %s)" $index $one) }}
{{- end }}
{{- end }}
{{- $folders := dict }}
{{- range .Values.models.sources }}
{{- if hasKey $folders (base .) }}
{{- fail (printf "models.sources: %s and %s would share the folder %s" (get $folders (base .)) . (base .)) }}
{{- end }}
{{- $_ := set $folders (base .) . }}
{{- end }}
{{- include "outrider.checkServeConfig" . }}
{{- end }}

{{/* "yes" for an IPv4 or IPv6 address with the length of a prefix. */}}
{{- define "outrider.isBlock" -}}
{{- $byte := "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" }}
{{- $four := printf "^(%s[.]){3}%s/(3[0-2]|[12]?[0-9])$" $byte $byte }}
{{- $groups := "[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*" }}
{{- $six := printf "^(%s)?(::(%s)?)?/(12[0-8]|1[01][0-9]|[1-9]?[0-9])$" $groups $groups }}
{{- $given := len (regexFindAll "[0-9a-fA-F]+" (first (splitList "/" .)) -1) }}
{{- if regexMatch $four . }}yes
{{- else if and (regexMatch $six .) (contains "::" . | ternary (le $given 7) (eq $given 8)) }}yes
{{- end }}
{{- end }}

{{/* A quantity of CPUs in thousandths: 4, "4", "0.5" or "250m". */}}
{{- define "outrider.milli" -}}
{{- $text := toString . }}
{{- if hasSuffix "m" $text }}{{ trimSuffix "m" $text }}{{ else }}{{ mulf $text 1000 | int64 }}{{ end }}
{{- end }}

{{/* A quantity of memory in bytes: "16Gi", or bytes already. */}}
{{- define "outrider.bytes" -}}
{{- $units := dict "bytes" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 }}
{{- $units = merge $units (dict "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) }}
{{- mul (regexFind "^[0-9]+" .) (get $units (regexFind "[A-Za-z]+$" . | default "bytes")) }}
{{- end }}

{{- define "outrider.checkCpu" -}}
{{- with .pool.cpuLimit }}
{{- if gt (include "outrider.milli" $.pool.cpu | int64) (include "outrider.milli" . | int64) }}
{{- fail (printf "%s.cpu: at most %s.cpuLimit = %v (got %v)" $.name $.name . $.pool.cpu) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Ray's object store lies in /dev/shm, and what lies there counts as memory of the pod. */}}
{{- define "outrider.checkMemory" -}}
{{- $store := int64 .pool.objectStoreMemory }}
{{- if gt $store (include "outrider.bytes" .pool.sharedMemory | int64) }}
{{- fail (printf "%s.objectStoreMemory: at most the size of /dev/shm, which is %s (got %s)" .name .pool.sharedMemory .pool.objectStoreMemory) }}
{{- end }}
{{- if ge $store (include "outrider.bytes" .pool.memory | int64) }}
{{- fail (printf "%s.objectStoreMemory: less than %s.memory = %s (got %s)" .name .name .pool.memory .pool.objectStoreMemory) }}
{{- end }}
{{- end }}

{{/* Variables that would stand twice. The list: those of the templates, and those that the operator adds. */}}
{{- define "outrider.checkVariables" -}}
{{- $ours := list "RAY_USAGE_STATS_ENABLED" "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S" "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S" }}
{{- $ours = concat $ours (list "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S" "HF_HUB_OFFLINE" "OUTRIDER_INTERNAL_TOKEN") }}
{{- $ours = concat $ours (list "RAY_AUTH_MODE" "RAY_AUTH_TOKEN" "RAY_ADDRESS" "RAY_PORT" "RAY_IP" "FQ_RAY_IP") }}
{{- $seen := list }}
{{- range $index, $one := .pool.extraEnv }}
{{- if has $one.name (concat $ours $seen) }}
{{- fail (printf "%s.extraEnv[%d].name: %s is set already" $.name $index $one.name) }}
{{- end }}
{{- $seen = append $seen $one.name }}
{{- end }}
{{- end }}

{{/* Tolerations that Kubernetes would refuse, and labels of nodes that other values set. */}}
{{- define "outrider.checkPlaces" -}}
{{- range $index, $one := .pool.tolerations }}
{{- $where := printf "%s.tolerations[%d]" $.name $index }}
{{- if and (eq (default "Equal" $one.operator) "Exists") $one.value }}
{{- fail (printf "%s.value: operator Exists takes none (got %s)" $where $one.value) }}
{{- end }}
{{- if and (ne (default "Equal" $one.operator) "Exists") (not $one.key) }}
{{- fail (printf "%s.key: is needed, but with operator Exists" $where) }}
{{- end }}
{{- if and (hasKey $one "tolerationSeconds") (ne (default "" $one.effect) "NoExecute") }}
{{- fail (printf "%s.tolerationSeconds: needs effect NoExecute" $where) }}
{{- end }}
{{- end }}
{{- if and .pool.gpuProduct (hasKey .pool.nodeSelector "nvidia.com/gpu.product") }}
{{- fail (printf "%s.nodeSelector: nvidia.com/gpu.product is set by %s.gpuProduct; give one of both" .name .name) }}
{{- end }}
{{- end }}

{{/* The parts of the Serve config that the other objects rely on. The rest is checked where it is read. */}}
{{- define "outrider.checkServeConfig" -}}
{{- $text := include "outrider.serveConfig" . }}
{{- $config := fromYaml $text }}
{{- if regexReplaceAll "(?m)^[ \\t]*(#.*)?\n" $text "" | trimPrefix "---" | regexMatch "(?m)^---(\\s|$)" }}
{{- fail "serveConfig: one YAML document is expected, and a second one begins in it" }}
{{- end }}
{{- if not (kindIs "slice" (get $config "applications")) }}
{{- fail "serveConfig: must be the text of a Serve config, YAML with a list `applications`" }}
{{- end }}
{{- $ours := list }}
{{- range $config.applications }}
{{- if not (kindIs "map" .) }}
{{- fail "serveConfig: each of `applications` must be a mapping" }}
{{- end }}
{{- if eq (toString .import_path) "cluster.app:build" }}
{{- $ours = append $ours . }}
{{- end }}
{{- end }}
{{- if ne (len $ours) 1 }}
{{- fail (printf "serveConfig: exactly one application needs `import_path: cluster.app:build`, found %d" (len $ours)) }}
{{- end }}
{{- if and .Values.serveConfigRequired (not .Values.serveConfig) }}
{{- fail "serveConfig: these values need a Serve config of their own, and that of the base is another: give it with --set-file serveConfig=FILE, at each upgrade too" }}
{{- end }}
{{- $args := (first $ours).args }}
{{- if not (and (kindIs "map" $args) (kindIs "string" (get (default dict $args) "model_name")) (kindIs "map" (get (default dict $args) "target"))) }}
{{- fail "serveConfig: `args` of the application must be a mapping with `model_name` and `target`" }}
{{- end }}
{{- include "outrider.checkModels" (dict "args" $args "sources" .Values.models.sources) }}
{{- include "outrider.checkPools" (dict "args" $args "values" .Values) }}
{{- range $key := list "http_options" "grpc_options" }}
{{- if not (kindIs "map" (get $config $key | default dict)) }}
{{- fail (printf "serveConfig: `%s` must be a mapping" $key) }}
{{- end }}
{{- end }}
{{- $http := get $config "http_options" | default dict }}
{{- $grpc := get $config "grpc_options" | default dict }}
{{- if ne (toString (dig "port" 8000 $http)) "8000" }}
{{- fail (printf "serveConfig: http_options.port must be 8000, on which probes and Services rely (got %v)" $http.port) }}
{{- end }}
{{- if ne (toString (dig "port" 9000 $grpc)) "9000" }}
{{- fail (printf "serveConfig: grpc_options.port must be 9000, on which Services rely (got %v)" $grpc.port) }}
{{- end }}
{{- if not (has (toString (dig "host" "0.0.0.0" $http)) (list "0.0.0.0" "::")) }}
{{- fail (printf "serveConfig: http_options.host must be 0.0.0.0 or ::, for probes come from outside the pod (got %v)" $http.host) }}
{{- end }}
{{- if ne (toString (dig "proxy_location" "EveryNode" $config)) "EveryNode" }}
{{- fail (printf "serveConfig: proxy_location must be EveryNode, for the head carries no traffic (got %v)" $config.proxy_location) }}
{{- end }}
{{- $servicer := "outrider.v1.generation_pb2_grpc.add_GenerationServiceServicer_to_server" }}
{{- $functions := get $grpc "grpc_servicer_functions" }}
{{- if not (and (kindIs "slice" $functions) (or (has $servicer $functions) (has (replace "grpc.add" "grpc:add" $servicer) $functions))) }}
{{- fail (printf "serveConfig: grpc_options.grpc_servicer_functions must have %s" $servicer) }}
{{- end }}
{{- end }}

{{/* Every model in the volume is one that pods wait for. Arguments: args of the application; sources. */}}
{{- define "outrider.checkModels" -}}
{{- $there := list }}
{{- range .sources }}
{{- $there = append $there (base .) }}
{{- end }}
{{- range $pool := list "target" "draft" }}
{{- $model := (include "outrider.under" (dict "in" $.args "keys" (list $pool "config" "model" "model")) | fromJson).it }}
{{- $folder := regexFind "^/models/+[^/]+" (toString $model) }}
{{- if and $folder (not (has (base $folder) $there)) }}
{{- fail (printf "serveConfig: the model %s of `%s` is in none of models.sources (%s): give the Serve config that belongs to these values with --set-file serveConfig=FILE, at each upgrade too, or add the model's source" $folder $pool (join ", " $.sources)) }}
{{- end }}
{{- end }}
{{- end }}
