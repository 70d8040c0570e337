package podtest

const sysSetns = 268
