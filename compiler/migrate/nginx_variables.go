package migrate

import (
	"regexp"
	"slices"
	"strings"
)

// named matches the variables by which ingress-nginx tells a location what it is of.
var named = regexp.MustCompile(`\$\{?(namespace|ingress_name|service_name|service_port)\b\}?`)

// expandNames replaces the variables that are the same for all requests of an object. Which
// Service a request is for is not known where there are several.
func expandNames(text string, o *object) string {
	values := map[string]string{"namespace": o.namespace, "ingress_name": o.name}
	if len(o.paths) > 0 && !slices.ContainsFunc(o.paths, func(p pathEdit) bool { return p.service != o.paths[0].service || p.port != o.paths[0].port }) {
		values["service_name"], values["service_port"] = o.paths[0].service, o.paths[0].port
	}
	return named.ReplaceAllStringFunc(text, func(variable string) string {
		if value := values[strings.Trim(variable, "${}")]; value != "" {
			return value
		}
		return variable
	})
}

// sources are what requests have under the names of nginx, as our options for headers name it.
var sources = map[string]string{
	"$host": "host", "$http_host": "header Host", "$best_http_host": "header Host", "$remote_addr": "client-address", "$the_real_ip": "client-address",
	"$remote_port": "client-port", "$request_uri": "uri", "$args": "query", "$query_string": "query", "$scheme": "scheme", "$pass_access_scheme": "scheme",
	"$request_method": "method", "$req_id": "request-id",
}

// headerVariable matches the variable for a header of the request.
var headerVariable = regexp.MustCompile(`^\$http_([a-z0-9_]+)$`)

// sourceOf returns what a value that is one variable of nginx is copied from, or "".
func sourceOf(value string) string {
	value = strings.NewReplacer("{", "", "}", "").Replace(value)
	if source := sources[value]; source != "" {
		return source
	}
	if m := headerVariable.FindStringSubmatch(value); m != nil {
		return "header " + strings.ReplaceAll(m[1], "_", "-")
	}
	return ""
}

// setOrCopy returns the line that sets a header to a value, which may be a variable.
func setOrCopy(name, value string) string {
	if source := sourceOf(value); source != "" {
		return "copy " + name + " " + source
	}
	return "set " + name + " " + value
}

// isCopied reports whether the values of a directive are variables that are copied, or none.
func isCopied(directive string, args []string) bool {
	switch directive {
	case "proxy_set_header":
		return len(args) == 2 && !strings.EqualFold(args[0], "host") && sourceOf(args[1]) != ""
	case "more_set_headers", "more_set_input_headers":
		return !slices.ContainsFunc(args, func(arg string) bool {
			name, value, _ := strings.Cut(arg, ":")
			return strings.Contains(name, "$") || strings.Contains(value, "$") && sourceOf(strings.TrimSpace(value)) == ""
		})
	}
	return false
}
