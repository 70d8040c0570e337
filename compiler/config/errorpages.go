package config

func (c Config) checkErrorPages(f Errors) {
	if c.ErrorPages != "" {
		f.Add(checkShared(c.ErrorPages), "use the namespace and the name of a ConfigMap, such as edge/error-pages")
	}
}
