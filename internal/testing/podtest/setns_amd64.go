package podtest

const sysSetns = 308
