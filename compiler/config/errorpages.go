package config

import "github.com/hapsnap/hapsnap/compiler/config/field"

func (c Config) checkErrorPages(f field.Errors) {
	if c.ErrorPages != "" {
		f.Add(checkShared(c.ErrorPages), "use the namespace and the name of a ConfigMap, such as edge/error-pages")
	}
}
