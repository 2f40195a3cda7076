{{/* What the Serve config asks of the pods of each pool: labels, sizes, time to end, files. */}}
{{- define "outrider.checkPools" -}}
{{- include "outrider.checkPool" (dict "args" .args "place" "target" "name" "verify" "pool" .values.verify) }}
{{- include "outrider.checkPool" (dict "args" .args "place" "draft" "name" "draft" "pool" .values.draft) }}
{{- include "outrider.checkPool" (dict "args" .args "place" "gateway" "name" "ingress" "pool" .values.ingress) }}
{{- $keys := (include "outrider.under" (dict "in" .args "keys" (list "gateway" "tenancy" "keys_file")) | fromJson).it }}
{{- if and $keys (not (hasPrefix "/etc/outrider/keys/" (toString $keys))) }}
{{- fail (printf "serveConfig: gateway.tenancy.keys_file must lie in /etc/outrider/keys, where the Secret outrider-api-keys is (got %v)" $keys) }}
{{- end }}
{{- end }}

{{/* What stands under keys of nested mappings, as JSON {"it": …}; null where a mapping or a key is missing. */}}
{{- define "outrider.under" -}}
{{- $place := .in }}
{{- range .keys }}
{{- $place = get (ternary $place dict (kindIs "map" $place)) . }}
{{- end }}
{{- dict "it" (ternary nil $place (eq (toString $place) "")) | toJson }}
{{- end }}

{{/* One pool. Arguments: args of the application; place, the pool's key there; name, of its group; pool, its values. A pool
     that the Serve config does not have is left alone. */}}
{{- define "outrider.checkPool" -}}
{{- if or (kindIs "map" (get .args .place)) (eq .place "gateway") }}
{{- $grace := (include "outrider.under" (dict "in" .args "keys" (list .place "graceful_shutdown_timeout_s")) | fromJson).it | default 120 }}
{{- if gt (float64 $grace) (float64 .pool.drainSeconds) }}
{{- fail (printf "%s.drainSeconds: at least graceful_shutdown_timeout_s of `%s` in the Serve config, which is %v (got %v)" .name .place $grace .pool.drainSeconds) }}
{{- end }}
{{- $selector := list .place "ray_actor_options" "label_selector" }}
{{- $role := (include "outrider.under" (dict "in" .args "keys" (append $selector "outrider/role")) | fromJson).it }}
{{- if ne (toString $role) .name }}
{{- $selector = (include "outrider.under" (dict "in" .args "keys" $selector) | fromJson).it | default dict }}
{{- fail (printf "serveConfig: `%s` needs ray_actor_options.label_selector {outrider/role: %s}, by which Ray finds its pods (got %s)" .place .name (toJson $selector)) }}
{{- end }}
{{- $ranks := (include "outrider.under" (dict "in" .args "keys" (list .place "config" "model" "tensor_parallel_size")) | fromJson).it | default 1 }}
{{- range $key, $default := dict "num_cpus" 1 "num_gpus" 0 }}
{{- $each := (include "outrider.under" (dict "in" $.args "keys" (list $.place "ray_actor_options" $key)) | fromJson).it }}
{{- $asked := mulf (float64 $ranks) (float64 (ternary $default $each (kindIs "invalid" $each))) }}
{{- $cpus := divf (include "outrider.milli" ($.pool.cpuLimit | default $.pool.cpu) | float64) 1000 | ceil }}
{{- $there := ternary $cpus (float64 ($.pool.gpus | default 0)) (eq $key "num_cpus") }}
{{- if gt $asked $there }}
{{- fail (printf "serveConfig: a replica of `%s` needs %v of ray_actor_options.%s in one pod, over all %v ranks, and a pod of %s has %v: none could ever be placed" $.place $asked $key $ranks $.name $there) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
