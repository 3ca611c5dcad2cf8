// Sets theme and language before the first paint, from what the last run left in local storage, so that a dark window does
// not flash white. A plain script rather than a module: modules run after parsing, which is too late. The app sets both
// again as soon as the settings arrive.
(function () {
  var root = document.documentElement;
  var theme = localStorage.getItem('tandem.theme');
  if (theme !== 'light' && theme !== 'dark') {
    theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  }
  root.dataset.theme = theme;
  var language = localStorage.getItem('tandem.language');
  if (language !== 'en' && language !== 'zh') {
    language = /^zh/i.test(navigator.language) ? 'zh' : 'en';
  }
  root.lang = language === 'zh' ? 'zh-CN' : 'en';
})();
